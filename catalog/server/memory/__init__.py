"""A catalog view held in memory: indexes by date, coin, category and impact."""
