"""frontends.headless"""
