"""Routes tokens to experts and carries them there and back.

May live here: routing, balancing, transports (one a file, all of one signature) and their tables.
May not: the rest of the model, optimizers, anything that knows what a token means.
"""
