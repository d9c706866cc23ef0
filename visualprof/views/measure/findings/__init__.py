"""Inputs and outputs of the rules for findings, levers and remarks."""
