"""Peers that send what is no request, or a bad one; peers that stall."""
