-- How many rows of a look have each verdict. Grain: verdict.
SELECT verdict, count(*) FROM judged GROUP BY verdict;
