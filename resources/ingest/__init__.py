"""A feed pulled and landed as one batch, resumable."""
