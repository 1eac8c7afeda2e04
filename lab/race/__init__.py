"""Race of context policies in the message loops of others, against a scripted provider. `make
race`.
"""
