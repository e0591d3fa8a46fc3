"""The expected times of candidates: profiles, the estimate, and models learned on top."""
