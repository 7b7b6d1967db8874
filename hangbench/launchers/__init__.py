"""Every way to start ranks that users have, each for real, beside a job that another launcher started."""
