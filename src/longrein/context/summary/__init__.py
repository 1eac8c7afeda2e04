"""What a summary says: records kept by code with their proofs, the model's audited prose, the user's own words."""
