"""Reports on stored sessions, each as a table and as JSON."""
