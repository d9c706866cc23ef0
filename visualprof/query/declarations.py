"""Texts of the schema: per table its definition, followed by one line per column with name, kind and definition.

Kinds are those in `visualprof.views.answers.kinds`; `kind:TYPE` overrides the SQL type. Every table also has
the columns `rank` and `trace`, which `schema` adds. `chinese` has the same definitions in Chinese.
"""

from __future__ import annotations

_EVENT = """
id id Row of the event in its trace; with several traces, unique over all of them.
ts ns Start, counted from the first event of the trace.
dur ns Duration; 0 for an instant.
name name Name of the event.
"""
_ORIGIN = """
op_id id Operator that launched the work.
op name Name of that operator.
module_id id Call of the innermost module around the launch; for backward work, that of the forward operator.
module name Name of that module.
module_path name Names of all modules around it, from the outermost inwards, joined by slashes.
backward flag Whether the work belongs to the backward pass of that module.
range_id id Innermost user range around the launch, on the launching thread.
range name Name of that range.
"""
_STEP = """
step_id id Step that launched the work, see the table `step`; NULL outside of steps.
step name Name of that step.
"""
_DEVICE_SPAN = """
device_start ns Start of the first device work that was launched inside.
device_end ns End of the last device work that was launched inside.
device_dur ns Time during which device work that was launched inside ran; overlapping work counts once.
"""

DECLARATIONS: dict[str, str] = {
    "slice": f"""
All events of threads, streams and captured graphs.
{_EVENT.strip()}
track_id id Track on which it ran, see the table `track`.
category word Category, such as op, kernel, runtime, annotation, module or python.
depth count Nesting depth on a thread; lane of overlapping work on a stream.
parent_id id Event around it on the same track.
arg_set_id id Key of its rows in `args`; equal to `id`.
correlation id Correlation id that connects a launch with its work.
launch_id id Call that launched it, for device work.
op_id id Innermost operator at or around the event; for device work, the operator that launched it.
module_id id Innermost module call at or around it; for backward work, that of the forward operator.
range_id id Innermost user range at or around it, for device work around its launch.
step_id id Step that launched it, see the table `step`; NULL outside of steps.
""",
    "track": """
Threads, streams, counters and other rows of the timeline.
id id Number of the track.
name name Name of the track.
kind word thread, stream, counter, gpu_annotation or graph.
process name Name of its process.
pid word Process id.
tid word Thread id.
device id Device of a stream.
stream id Number of a stream.
utid id Key of its row in `thread`, for threads.
upid id Key of its row in `process`.
""",
    "thread_track": """
Tracks of threads, as in Perfetto.
id id Number of the track.
name name Name of the track.
utid id Key of its row in `thread`.
""",
    "thread": """
Threads, as in Perfetto.
utid id Key of the thread.
tid word Thread id.
name name Name of the thread.
upid id Key of its row in `process`.
""",
    "process": """
Processes, as in Perfetto.
upid id Key of the process.
pid word Process id.
name name Name of the process.
""",
    "flow": """
Links between events.
slice_out id Event from which the link starts, such as a launch call.
slice_in id Event to which it leads, such as a kernel.
kind word launch, fwdbwd, async, flow or owner.
""",
    "counter": """
Samples of counters, including derived ones such as memory and utilization.
track_id id Number of the counter, see `counter_track`.
ts ns Time of the sample, counted from the first event of the trace.
value count:DOUBLE Value, in the unit that the counter's name states.
""",
    "counter_track": """
Counters.
id id Number of the counter.
name name Name of the counter, which ends in its unit.
process name Name of its process.
derived flag Whether visualprof derived the counter from events.
""",
    "args": """
Arguments of events, one row each.
arg_set_id id Event with the argument; equal to the event's `id`.
key word Name of the argument, see docs/trace-model.md#arguments.
int_value count Value of an integer argument.
real_value count:DOUBLE Value of a number with a fraction.
string_value text Value of a text.
display_value text Any value as text.
""",
    "step": """
Training or inference steps.
id id Number of the step.
name name Name of the step.
ts ns Start, counted from the first event of the trace.
dur ns Duration of the annotated range.
track_id id Track with the annotation.
phase word Phase of an inference step: prefill, decode or mixed.
batch count Requests of an inference step.
tokens count Tokens of an inference step.
""",
    "kernel": f"""
Kernels on devices, including those of collectives.
{_EVENT.strip()}
category word kernel, or comm for the kernels of collectives.
track_id id Track of its stream.
device id Device.
stream id Number of the stream.
launch_id id Call that launched it.
launch_delay ns Time from the end of the launching call to the start; NULL if unknown.
{_ORIGIN.strip()}
{_STEP.strip()}
grid dims Blocks in the grid.
block dims Threads in a block.
registers count Registers per thread.
shared_memory bytes Shared memory per block.
blocks_per_sm count:DOUBLE Blocks per multiprocessor.
occupancy ratio Estimated occupancy.
bytes bytes Bytes that the file records for it.
flops flo Operations that the file records for it.
""",
    "op": f"""
Operators of the framework. A call that only repeats its parent is left out.
{_EVENT.strip()}
category word op, or comm for collectives.
track_id id Track of its thread.
parent_id id Operator around it.
outermost flag Whether no operator is around it.
self_dur ns Host time without nested operators and runtime calls.
device_dur ns Device time of the work that it and nested operators launched; overlapping work counts twice.
device_self_dur ns Device time of the work that it launched itself.
module_id id Call of the innermost module around it; for backward work, that of the forward operator.
module name Name of that module.
module_path name Names of all modules around it, from the outermost inwards, joined by slashes.
backward flag Whether it belongs to the backward pass of that module.
range_id id Innermost user range around it.
range name Name of that range.
{_STEP.strip()}
input_shapes text Shapes of its inputs.
input_types text Types of its inputs.
output_shapes text Shapes of its outputs.
bytes bytes Bytes that the file records for it.
flops flo Operations that the file records for it.
stack text Python frames around it, the innermost first, one per line; for backward work, those of the forward operator.
""",
    "copy": f"""
Copies and fills on devices.
{_EVENT.strip()}
category word memcpy or memset.
track_id id Track of its stream.
device id Device.
stream id Number of the stream.
launch_id id Call that launched it.
{_ORIGIN.strip()}
{_STEP.strip()}
bytes bytes Bytes copied or filled.
bandwidth rate Bytes over the duration.
""",
    "collective": f"""
Collectives and messages of a rank, one row per call.
id id Event of the call: its last kernel, or the host operator.
ts ns Start of its first part, counted from the first event of the trace.
dur ns Time during which any part of the call ran, including the wait for other ranks.
name name Name of the collective.
kind word all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, recv or another word.
bytes bytes Size of the input or output, whichever is larger.
group_name name Name of the process group.
group_size count Ranks in the group.
sequence id Number that the group assigned to the call.
source id Rank that sends a message.
destination id Rank that receives a message.
bus_bandwidth rate Bandwidth of the links during `dur`, counted as in nccl-tests.
{_STEP.strip()}
""",
    "range": f"""
User ranges: annotations and the stages that frameworks mark.
{_EVENT.strip()}
category word annotation, forward, backward, optimizer or dataloader.
track_id id Track of its thread.
parent_id id User range around it.
path name Names of all user ranges around it and its own, from the outermost inwards, joined by slashes.
{_DEVICE_SPAN.strip()}
{_STEP.strip()}
""",
    "module": f"""
Calls of modules or layers.
{_EVENT.strip()}
path name Names of all modules around it and its own, from the outermost inwards, joined by slashes.
track_id id Track of its thread.
parent_id id Module call around it.
{_DEVICE_SPAN.strip()}
{_STEP.strip()}
""",
    "python": f"""
Calls of Python functions.
{_EVENT.strip()}
track_id id Track of its thread.
depth count Nesting depth on the thread.
parent_id id Event around it on the same track.
{_STEP.strip()}
""",
    "gap": f"""
Gaps between device work, of whole devices and of each stream.
id id Number of the gap.
ts ns Start, counted from the first event of the trace.
dur ns Length of the gap.
device id Device.
stream id Number of the stream; NULL for the whole device.
cause word host_wait, graph, kernel_wait, dependency, other or unknown, see docs/views/idle.md.
previous_id id Work before the gap.
previous name Name of the work before the gap.
next_id id Work after the gap.
next name Name of the work after the gap.
launch_id id Call that launched the work after the gap.
op_id id Operator that launched the work after the gap.
op name Name of that operator.
{_STEP.strip()}
""",
    "allocation": f"""
Allocations, each with its release.
id id Number of the memory event that allocated.
ts ns Time of the allocation, counted from the first event of the trace.
freed_ts ns Time of the release; NULL if it was not released during the recording.
lifetime ns Time from allocation to release.
bytes bytes Size.
device id Device, -1 for the host.
address word Address.
purpose word Purpose that the file records, or that is derived from stages, see docs/views/memory.md.
event_id id Event during which it was allocated.
op_id id Innermost operator around the allocation.
op name Name of that operator.
operator name Likewise; in a memory snapshot, from the joined recording, see docs/views/snapshot.md.
module_id id Call of the innermost module around the allocation; for backward work, that of the forward operator.
module name Name of that module; in a memory snapshot, as in `block`.
stack text Python frames around the operator, the innermost first, one per line.
{_STEP.strip()}
""",
    "memory": """
Memory events: allocations and releases with the totals after them.
id id Number of the memory event.
ts ns Time, counted from the first event of the trace.
device id Device, -1 for the host.
bytes bytes Size, negative for a release.
allocated bytes Allocated memory of the device after the event.
reserved bytes Reserved memory of the device after the event.
address word Address.
event_id id Event during which it happened.
""",
    "block": """
Blocks of a memory snapshot, those older than its history included.
id id Number of the block in its trace.
ts ns Time of the allocation, counted from the first event of the trace; NULL for blocks older than the history.
freed_ts ns Time of the release; NULL if it was not released in the history.
lifetime ns Time from allocation to release.
entry count Entry of the history that allocated it, from 0 on its device; NULL for blocks older than the history.
freed_entry count Entry that released it.
requested bytes Bytes that the program requested.
bytes bytes Size of the block, which is rounded up.
exact flag Whether the size is known; it is a lower bound otherwise.
device id Device.
address word Address.
pool word Memory pool: default, or the two numbers of a private pool.
stream word Address of the stream; 0x0 for the default stream.
line name Line of the program that allocated it: the innermost frame of your own source.
function name Function that allocated it.
operator name Innermost operator, from the joined recording, see docs/views/snapshot.md.
module name Path of modules in the recording; otherwise the chain of `forward` calls, by their lines.
category word Role of the memory, see docs/views/snapshot.md.
stack text Frames of the allocation, the innermost first, one per line.
free_stack text Frames of the release.
step name Name of the step that allocated it.
""",
    "meta": """
Facts about the recording.
key word Name of the fact, such as framework, host, world_size or warning.
value text Value as text.
""",
    "scalar": """
Scalars that the program logged, without points that a restart replaced; see docs/views/scalars.md.
tag name The tag.
run name Folder below the run, `.` for the run's own folder; with the file for parallel writers.
step count The step.
wall_time_s count:DOUBLE Unix time in seconds.
value count:DOUBLE The value; NULL for NaN.
""",
    "trial": """
Hyper-parameters and metrics of the trials that the training program logged.
run name Folder of the trial below the run, `.` for the run's own folder.
status word success, failure, running or ended; NULL if unknown.
kind word parameter or metric.
name name Name of the hyper-parameter, or tag of the metric.
number count:DOUBLE The number, or the last value of the metric; NULL for texts.
text text The text; true or false for a boolean.
""",
    "trace": """
The open traces.
id id Number of the trace; equal to `trace`.
name name Name of the file or worker.
events count Number of events.
first_id id Id of its first event: the row of an event in its trace is `id - first_id`.
origin ns Time 0 of this session in the trace's own clock.
""",
}

_COVERED = (
    "Time that intervals cover together, in ns; overlapping intervals count once. An aggregate. covered(spans) takes a "
    "list of [start, end] pairs, such as list([ts, ts + dur])."
)
MACROS: list[tuple[str, str]] = [
    ("covered(ts, dur)", _COVERED),
    ("extract_arg(id, key)", "Argument of an event as text; NULL if the event has none."),
    ("ancestor_slice(id)", "Table of the events around an event, as rows of `slice`."),
    ("descendant_slice(id)", "Table of the events inside an event, as rows of `slice`."),
]
