"""Almanac beside other tools that keep history, on the same daily exports."""
