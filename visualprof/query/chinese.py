"""The declarations in Chinese: the definition of each table, then one line per column with name and definition.

Tables and columns have the names in `declarations`. A missing table or column raises an error at import.
"""

from __future__ import annotations

_EVENT = """
id 事件在 trace 中的行号；打开多个 trace 时，在所有 trace 中唯一。
ts 开始时间，从 trace 的第一个事件算起。
dur 持续时间；瞬时事件为 0。
name 事件名称。
"""
_STREAM = """
track_id 所在流的轨道。
device 设备。
stream 流的编号。
"""
_ORIGIN = """
op_id 启动该工作的算子。
op 该算子的名称。
module_id 启动处所在的最内层模块调用；反向工作取其前向算子所在的模块。
module 该模块的名称。
module_path 由外到内各层模块的名称，以斜杠连接。
backward 是否属于该模块的反向传播。
range_id 启动线程上，启动处所在的最内层用户区间。
range 该区间的名称。
"""
_STEP = """
step_id 启动该工作的步，见表 `step`；不在任何步内时为 NULL。
step 该步的名称。
"""
_DEVICE_SPAN = """
device_start 其中启动的首个设备工作的开始时间。
device_end 其中启动的最后一个设备工作的结束时间。
device_dur 其中启动的设备工作的运行时间；重叠部分只计一次。
"""

CHINESE: dict[str, str] = {
    "slice": f"""
线程、流和捕获的图中的所有事件。
{_EVENT.strip()}
track_id 事件所在的轨道，见表 `track`。
category 类别，例如 op、kernel、runtime、annotation、module 或 python。
depth 线程上的嵌套深度；流上为重叠工作的并行行号。
parent_id 同一轨道上包含该事件的事件。
arg_set_id 该事件在 `args` 中的键，等于 `id`。
correlation 将启动调用与其工作关联起来的 correlation id。
launch_id 对于设备工作，启动它的调用。
op_id 事件自身或包含它的最内层算子；对于设备工作，为启动它的算子。
module_id 事件自身或包含它的最内层模块调用；反向工作取其前向算子所在的模块。
range_id 事件自身或包含它的最内层用户区间；对于设备工作，以启动处为准。
step_id 启动该事件的步，见表 `step`；不在任何步内时为 NULL。
""",
    "track": """
线程、流、计数器以及时间线的其他行。
id 轨道编号。
name 轨道名称。
kind thread、stream、counter、gpu_annotation 或 graph。
process 所属进程的名称。
pid 进程 id。
tid 线程 id。
device 流所在的设备。
stream 流的编号。
utid 对于线程，其在 `thread` 中的键。
upid 其在 `process` 中的键。
""",
    "thread_track": """
线程的轨道，与 Perfetto 相同。
id 轨道编号。
name 轨道名称。
utid 其在 `thread` 中的键。
""",
    "thread": """
线程，与 Perfetto 相同。
utid 线程的键。
tid 线程 id。
name 线程名称。
upid 其在 `process` 中的键。
""",
    "process": """
进程，与 Perfetto 相同。
upid 进程的键。
pid 进程 id。
name 进程名称。
""",
    "flow": """
事件之间的关联。
slice_out 关联的起点事件，例如启动调用。
slice_in 关联的终点事件，例如核函数。
kind launch、fwdbwd、async、flow 或 owner。
""",
    "counter": """
计数器的采样值，包括推导出的计数器，例如内存和利用率。
track_id 计数器编号，见 `counter_track`。
ts 采样时间，从 trace 的第一个事件算起。
value 采样值，单位见计数器名称。
""",
    "counter_track": """
计数器。
id 计数器编号。
name 计数器名称，以单位结尾。
process 所属进程的名称。
derived 该计数器是否由 visualprof 根据事件推导。
""",
    "args": """
事件的参数，每个参数一行。
arg_set_id 参数所属的事件，等于事件的 `id`。
key 参数名称，见 docs/trace-model.md#arguments。
int_value 整数参数的值。
real_value 带小数的参数的值。
string_value 文本参数的值。
display_value 任意类型的值的文本形式。
""",
    "step": """
训练或推理的步。
id 步的编号。
name 步的名称。
ts 开始时间，从 trace 的第一个事件算起。
dur 标注区间的持续时间。
track_id 标注所在的轨道。
phase 推理步的阶段：prefill、decode 或 mixed。
batch 推理步中的请求数。
tokens 推理步中的 token 数。
""",
    "kernel": f"""
设备上的核函数，包括集合通信的核函数。
{_EVENT.strip()}
category kernel；集合通信的核函数为 comm。
{_STREAM.strip()}
launch_id 启动它的调用。
launch_delay 从启动调用结束到核函数开始执行的时间；未知时为 NULL。
{_ORIGIN.strip()}
{_STEP.strip()}
grid grid 中的 block 数。
block block 中的线程数。
registers 每个线程的寄存器数。
shared_memory 每个 block 的共享内存。
blocks_per_sm 每个多处理器的 block 数。
occupancy 估计的占用率。
bytes 文件中记录的字节数。
flops 文件中记录的运算量。
""",
    "op": f"""
框架的算子。仅重复其父算子的调用不计入。
{_EVENT.strip()}
category op；集合通信为 comm。
track_id 所在线程的轨道。
parent_id 包含它的算子。
outermost 是否没有算子包含它。
self_dur 主机上的自身耗时，不含内层算子和运行时 API 调用。
device_dur 它和内层算子启动的工作的设备耗时；重叠部分重复计入。
device_self_dur 它自身启动的工作的设备耗时。
module_id 包含它的最内层模块调用；反向工作取其前向算子所在的模块。
module 该模块的名称。
module_path 由外到内各层模块的名称，以斜杠连接。
backward 是否属于该模块的反向传播。
range_id 包含它的最内层用户区间。
range 该区间的名称。
{_STEP.strip()}
input_shapes 输入的形状。
input_types 输入的类型。
output_shapes 输出的形状。
bytes 文件中记录的字节数。
flops 文件中记录的运算量。
stack 包含它的 Python 栈帧，每行一个，最内层在前；反向工作取其前向算子的栈帧。
""",
    "copy": f"""
设备上的拷贝和填充。
{_EVENT.strip()}
category memcpy 或 memset。
{_STREAM.strip()}
launch_id 启动它的调用。
{_ORIGIN.strip()}
{_STEP.strip()}
bytes 拷贝或填充的字节数。
bandwidth 字节数除以持续时间。
""",
    "collective": f"""
单个 rank 的集合通信和消息，每次调用一行。
id 调用对应的事件：其最后一个核函数，或主机上的算子。
ts 首个部分的开始时间，从 trace 的第一个事件算起。
dur 调用的任一部分处于运行中的时间，包括等待其他 rank 的时间。
name 集合通信的名称。
kind all_reduce、all_gather、reduce_scatter、all_to_all、broadcast、send、recv 或其他名称。
bytes 输入与输出中较大者的大小。
group_name 进程组的名称。
group_size 进程组中的 rank 数。
sequence 进程组为该调用分配的序号。
source 发送消息的 rank。
destination 接收消息的 rank。
bus_bandwidth `dur` 期间的链路带宽，算法与 nccl-tests 相同。
{_STEP.strip()}
""",
    "range": f"""
用户区间：标注，以及框架标出的阶段。
{_EVENT.strip()}
category annotation、forward、backward、optimizer 或 dataloader。
track_id 所在线程的轨道。
parent_id 包含它的用户区间。
path 由外到内各层用户区间及其自身的名称，以斜杠连接。
{_DEVICE_SPAN.strip()}
{_STEP.strip()}
""",
    "module": f"""
模块或层的调用。
{_EVENT.strip()}
path 由外到内各层模块及其自身的名称，以斜杠连接。
track_id 所在线程的轨道。
parent_id 包含它的模块调用。
{_DEVICE_SPAN.strip()}
{_STEP.strip()}
""",
    "python": f"""
Python 函数的调用。
{_EVENT.strip()}
track_id 所在线程的轨道。
depth 线程上的嵌套深度。
parent_id 同一轨道上包含该事件的事件。
{_STEP.strip()}
""",
    "gap": f"""
设备工作之间的间隙，分为整个设备和各个流。
id 间隙编号。
ts 开始时间，从 trace 的第一个事件算起。
dur 间隙的长度。
device 设备。
stream 流的编号；整个设备的间隙为 NULL。
cause host_wait、graph、kernel_wait、dependency、other 或 unknown，见 docs/zh/views/idle.md。
previous_id 间隙之前的工作。
previous 间隙之前的工作的名称。
next_id 间隙之后的工作。
next 间隙之后的工作的名称。
launch_id 启动间隙之后的工作的调用。
op_id 启动间隙之后的工作的算子。
op 该算子的名称。
{_STEP.strip()}
""",
    "allocation": f"""
内存分配及其释放。
id 分配所对应的内存事件的编号。
ts 分配时间，从 trace 的第一个事件算起。
freed_ts 释放时间；采集期间未释放时为 NULL。
lifetime 从分配到释放的时间。
bytes 大小。
device 设备，主机为 -1。
address 地址。
purpose 文件中记录的用途，或根据阶段推导的用途，见 docs/zh/views/memory.md。
event_id 分配发生时所处的事件。
op_id 包含该分配的最内层算子。
op 该算子的名称。
operator 同上；内存快照取自关联的采集，见 docs/zh/views/snapshot.md。
module_id 包含该分配的最内层模块调用；反向工作取其前向算子所在的模块。
module 该模块的名称；内存快照与 `block` 相同。
stack 包含该算子的 Python 栈帧，每行一个，最内层在前。
{_STEP.strip()}
""",
    "memory": """
内存事件：分配和释放，以及其后的总量。
id 内存事件的编号。
ts 时间，从 trace 的第一个事件算起。
device 设备，主机为 -1。
bytes 大小，释放为负数。
allocated 事件之后设备上已分配的内存。
reserved 事件之后设备上已保留的内存。
address 地址。
event_id 该内存事件发生时所处的事件。
""",
    "block": """
内存快照中的块，包括早于历史的块。
id 块在其 trace 中的编号。
ts 分配时间，从 trace 的第一个事件算起；早于历史的块为 NULL。
freed_ts 释放时间；在历史中未释放时为 NULL。
lifetime 从分配到释放的时间。
entry 分配该块的条目序号，每个设备从 0 开始；早于历史的块为 NULL。
freed_entry 释放该块的条目序号。
requested 程序请求的字节数。
bytes 块的大小（向上取整）。
exact 块的大小是否已知；否则为下限。
device 设备。
address 地址。
pool 内存池：default，或私有内存池的两个编号。
stream 流的地址；默认流为 0x0。
line 分配该块的程序行：您自己源码中最内层的栈帧。
function 分配该块的函数。
operator 最内层算子，取自关联的采集，见 docs/zh/views/snapshot.md。
module 采集中的模块路径；没有时为 `forward` 调用链（按源码行）。
category 内存的用途，见 docs/zh/views/snapshot.md。
stack 分配时的栈帧，每行一个，最内层在前。
free_stack 释放时的栈帧。
step 分配该块的步的名称。
""",
    "meta": """
采集结果的基本信息。
key 信息名称，例如 framework、host、world_size 或 warning。
value 文本形式的值。
""",
    "scalar": """
训练程序记录的标量，不含被重启取代的数据点，见 docs/zh/views/scalars.md。
tag 标签。
run 运行目录下的子目录，`.` 为运行自己的目录；并行写入时附带文件名。
step 步。
wall_time_s Unix 时间，单位为秒。
value 数值；NaN 为 NULL。
""",
    "trial": """
训练程序记录的各次试验的超参数和指标。
run 试验在运行目录下的子目录，`.` 为运行自己的目录。
status success、failure、running 或 ended；未知时为 NULL。
kind parameter（超参数）或 metric（指标）。
name 超参数的名称，或指标的标签。
number 数值，或指标的最后一个值；文本时为 NULL。
text 文本；布尔值为 true 或 false。
""",
    "trace": """
已打开的 trace。
id trace 的编号，等于 `trace`。
name 文件或 worker 的名称。
events 事件数。
first_id 首个事件的 id：事件在 trace 中的行号为 `id - first_id`。
origin 本次会话的时间零点，以该 trace 自身的时钟表示。
""",
}
CHINESE_LAST_COLUMNS = """
rank 采集该行的进程的 rank；未知时为 NULL。
trace trace 的编号，见表 `trace`；只打开一个 trace 时为 0。
"""
CHINESE_MACROS: dict[str, str] = {
    "covered(ts, dur)": "各时间段共同覆盖的时间，单位为 ns，重叠部分只计一次。聚合函数。"
    "covered(spans) 的参数为 [start, end] 的列表，例如 list([ts, ts + dur])。",
    "extract_arg(id, key)": "事件的某个参数的文本；事件没有该参数时为 NULL。",
    "ancestor_slice(id)": "包含某个事件的各层事件，每行与 `slice` 相同。",
    "descendant_slice(id)": "某个事件内部的所有事件，每行与 `slice` 相同。",
}
CHINESE_UNITS = {"bytes": "字节", "0 to 1": "0 到 1", "bytes/s": "字节/s", "operations": "次运算"}
