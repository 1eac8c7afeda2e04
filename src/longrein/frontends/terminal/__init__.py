"""frontends.terminal"""
