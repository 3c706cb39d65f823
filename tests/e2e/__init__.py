"""The real command in real processes, killed with real signals."""
