"""Building and timing candidates in processes of their own."""
