"""The lab without its front end: JSON in, JSON out."""
