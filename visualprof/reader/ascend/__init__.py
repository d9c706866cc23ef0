"""Recordings of Ascend NPUs: common parts of the text form and the database form.

A recording is a folder `{worker}_{time}_ascend_pt` of torch_npu, with the exported files in `ASCEND_PROFILER_OUTPUT`.
"""
