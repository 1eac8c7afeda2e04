"""longrein"""
