"""What came out of a trial, beside what comes out undisturbed: what is wrong, why, and which mistake it shows."""
