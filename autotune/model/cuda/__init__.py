"""The model of GPUs of NVIDIA: counts of what a launch asks of the hardware, and a time."""
