"""Where the API server is, who we are there, and the one HTTP session that everything shares."""
