"""Attention operators beside their peers, measured: `performer bench attention`."""
