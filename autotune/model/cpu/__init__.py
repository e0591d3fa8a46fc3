"""The model of processors: the estimate, its features, and the roofline."""
