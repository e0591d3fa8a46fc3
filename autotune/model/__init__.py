"""What candidates are expected to take: profiles, the estimate, and models learned on top."""
