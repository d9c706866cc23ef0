"""`LogWriter`: logs run data, in place of VisualDL's `LogWriter` or torch's `SummaryWriter`."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec

from visualprof.capture.files import warn
from visualprof.capture.graph import add_graph
from visualprof.capture.log import audio, curves, hparams, layouts, messages
from visualprof.capture.log.embeddings import write_embedding
from visualprof.capture.log.file_writer import FileWriter, to_seconds
from visualprof.capture.log.histograms import histogram
from visualprof.capture.log.images import arrange, figure_png, png, to_many_pixels, to_pixels

_TORCH_RATE, _VISUALDL_RATE = 44_100, 8_000
P = ParamSpec("P")


def _warn_on_error(method: Callable[Concatenate[LogWriter, P], None]) -> Callable[Concatenate[LogWriter, P], None]:
    """Return a method that turns its errors into warnings, because logging must not end a training."""

    @functools.wraps(method)
    def call(self: LogWriter, *args: P.args, **keywords: P.kwargs) -> None:
        try:
            method(self, *args, **keywords)
        except Exception as error:  # noqa: BLE001 - whatever the value is
            warn(f"{method.__name__} logged nothing: {error}")

    return call


class LogWriter(FileWriter):
    """Writer of an event file in a folder. Values are written in the background, twice a second.

    All methods take the names of arguments of both `visualdl.LogWriter` and `torch.utils.tensorboard.SummaryWriter`.
    Without a step, a scalar gets the next step of its tag, and other values get step 0. An error of a
    method becomes a warning.

    Args:
        logdir: Folder of the run, created if missing (default: a new folder in `runs`).
        comment: End of the name of the default folder.
        log_dir: Like `logdir`.
        purge_step: Step at which the training resumes: from this step on, the file replaces earlier values.
        filename_suffix: End of the name of the file.
        file_name: Name of the file; an existing one is continued.
        write_to_disk: False writes nothing, for example on other ranks.
        max_queue: Not used.
        flush_secs: Not used.
        display_name: Not used.

    Raises:
        CaptureError: The file cannot be created.
    """

    def __init__(self, logdir: str | os.PathLike[str] | None = None, comment: str = "", **options: Any) -> None:
        super().__init__(logdir, comment, **options)
        self._children: dict[str, LogWriter] = {}
        self._parameters: dict[str, hparams.Parameter] | None = None

    @_warn_on_error
    def add_image(
        self,
        tag: str,
        img: Any = None,
        step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "",
        *,
        img_tensor: Any = None,
        global_step: int | None = None,
    ) -> None:
        """Log an image; `dataformats` such as `CHW` is inferred from the shape by default."""
        self._add_pixels(tag, to_pixels(_first(img, img_tensor), dataformats), _first(step, global_step), walltime)

    @_warn_on_error
    def add_images(
        self,
        tag: str,
        imgs: Any = None,
        step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "",
        *,
        img_tensor: Any = None,
        global_step: int | None = None,
    ) -> None:
        """Log images as one image with 8 per row; `dataformats` such as `NCHW` is inferred by default."""
        pixels = arrange(to_many_pixels(_first(imgs, img_tensor), dataformats))
        self._add_pixels(tag, pixels, _first(step, global_step), walltime)

    @_warn_on_error
    def add_image_matrix(
        self,
        tag: str,
        imgs: Any,
        step: int | None = None,
        rows: int = -1,
        scale: float = 1.0,
        walltime: float | None = None,
        dataformats: str = "",
    ) -> None:
        """Log images as one image with this number of rows, by default a square; the scale must be 1."""
        if scale != 1.0:
            raise ValueError("images are not scaled: scale must be 1")
        layout = f"N{dataformats}" if len(dataformats) == 3 else dataformats
        pixels = to_many_pixels(imgs, layout)
        columns = math.ceil(len(pixels) / rows) if rows > 0 else math.ceil(math.sqrt(len(pixels)))
        self._add_pixels(tag, arrange(pixels, columns), step, walltime)

    @_warn_on_error
    def add_figure(
        self,
        tag: str,
        figure: Any,
        step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
        *,
        global_step: int | None = None,
    ) -> None:
        """Log a figure of Matplotlib as an image, and close the figure if `close`."""
        data, height, width = figure_png(figure, close)
        self._add(lambda: [messages.image(tag, height, width, 4, data)], _first(step, global_step), walltime)

    @_warn_on_error
    def add_histogram(
        self,
        tag: str,
        values: Any,
        step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
        *,
        buckets: int | None = None,
        global_step: int | None = None,
    ) -> None:
        """Log the distribution of values, in exponential buckets by default, or in `buckets` of equal width."""
        value = histogram(tag, values, buckets or bins, max_bins)
        self._add(lambda: [value], _first(step, global_step), walltime)

    @_warn_on_error
    def add_audio(
        self,
        tag: str,
        audio_array: Any = None,
        step: int | None = None,
        sample_rate: int | None = None,
        walltime: float | None = None,
        *,
        snd_tensor: Any = None,
        global_step: int | None = None,
    ) -> None:
        """Log sound. Without a rate, it is 44,100 Hz for torch's tensors and names of arguments, 8,000 Hz otherwise."""
        is_torch = hasattr(audio_array, "detach") or snd_tensor is not None
        rate = sample_rate or (_TORCH_RATE if is_torch else _VISUALDL_RATE)
        frames = audio.to_frames(_first(audio_array, snd_tensor))
        count, channels = frames.shape
        self._add(
            lambda: [messages.audio(tag, rate, channels, count, audio.wav(frames, rate))],
            _first(step, global_step),
            walltime,
        )

    @_warn_on_error
    def add_text(
        self,
        tag: str,
        text_string: str,
        step: int | None = None,
        walltime: float | None = None,
        *,
        global_step: int | None = None,
    ) -> None:
        """Log a text in Markdown."""
        self._add(lambda: [messages.text(f"{tag}/text_summary", str(text_string))], _first(step, global_step), walltime)

    @_warn_on_error
    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        step: int | None = None,
        num_thresholds: int = curves.DEFAULT_THRESHOLDS,
        weights: Any = None,
        walltime: float | None = None,
        *,
        global_step: int | None = None,
    ) -> None:
        """Log a precision-recall curve of binary labels and predictions from 0 to 1."""
        counts = curves.counts_by_threshold(labels, predictions, num_thresholds, weights)
        self._add(lambda: [curves.pr_curve(tag, counts)], _first(step, global_step), walltime)

    @_warn_on_error
    def add_roc_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        step: int | None = None,
        num_thresholds: int = curves.DEFAULT_THRESHOLDS,
        weights: Any = None,
        walltime: float | None = None,
        *,
        global_step: int | None = None,
    ) -> None:
        """Log a ROC curve of binary labels and predictions from 0 to 1. TensorBoard does not show it."""
        counts = curves.counts_by_threshold(labels, predictions, num_thresholds, weights)
        self._add(lambda: [curves.roc_curve(tag, counts)], _first(step, global_step), walltime)

    @_warn_on_error
    def add_hparams(
        self,
        hparams_dict: Mapping[str, Any] | None = None,
        metrics_list: Iterable[str] | Mapping[str, Any] | None = None,
        hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
        *,
        hparam_dict: Mapping[str, Any] | None = None,
        metric_dict: Mapping[str, Any] | None = None,
        walltime: float | None = None,
    ) -> None:
        """Log the hyper-parameters of the run, the tags of its results, and their values if given.

        Different hyper-parameters, or a `run_name`, start a separate trial in a subfolder.
        """
        parameters = hparams.plain(_first(hparams_dict, hparam_dict) or {})
        metrics: Iterable[str] | Mapping[str, Any] = _first(metrics_list, metric_dict) or ()
        if run_name or self._parameters not in (None, parameters):
            child = self._child(run_name or f"trial{len(self._children) + 2}")
            child.add_hparams(parameters, metrics, hparam_domain_discrete, None, global_step, walltime=walltime)
            return
        self._parameters = parameters
        wall_s = time.time() if walltime is None else to_seconds(walltime)
        values = hparams.values(parameters, list(metrics), hparam_domain_discrete or {}, wall_s)
        self._add(lambda: values, 0, wall_s)
        if self._stream:
            for tag, value in dict[str, Any](metrics if isinstance(metrics, Mapping) else ()).items():
                step = self._stream.last_step(tag) if global_step is None else global_step
                self.add_scalar(tag, value, step, wall_s)

    @_warn_on_error
    def add_embedding(
        self,
        mat: Any,
        metadata: Sequence[Any] | None = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Log vectors, with a label or a row of labels each, and pictures."""
        if self._stream:
            header = list(metadata_header or ())
            write_embedding(
                self._folder, tag, global_step or 0, vectors=mat, labels=metadata, names=header, images=label_img
            )

    @_warn_on_error
    def add_embeddings(
        self,
        tag: str,
        mat: Any = None,
        metadata: Any = None,
        metadata_header: Sequence[str] | None = None,
        walltime: float | None = None,
        labels: Any = None,
        hot_vectors: Any = None,
        labels_meta: Sequence[str] | None = None,
    ) -> None:
        """Log vectors. The labels are a list, or a list of columns with the names `metadata_header`."""
        del walltime
        columns: Any = _first(metadata, labels)
        columns = columns.tolist() if hasattr(columns, "tolist") else columns
        names = list(_first(metadata_header, labels_meta) or ())
        if columns and isinstance(columns[0], list | tuple):
            names = names or [f"label_{i}" for i in range(len(columns))]
            columns = [list(row) for row in zip(*columns, strict=True)]
        elif names and columns:
            columns = [[label] for label in columns]
        self.add_embedding(_first(mat, hot_vectors), columns, None, 0, tag, names)

    @_warn_on_error
    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
        *,
        input_spec: Any = None,
    ) -> None:
        """Run a model once and write its graph, like `visualprof.capture.add_graph`."""
        del verbose, use_strict_trace
        if self._stream:
            add_graph(model, _first(input_to_model, input_spec), self._folder)

    @_warn_on_error
    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Log which tags share a chart: `{category: {title: ["Multiline", [tag, ...]]}}`; `Margin` takes three tags."""
        value = layouts.custom_scalars(layout)
        self._add(lambda: [value], 0, None)

    def flush(self) -> None:
        """Write all values now."""
        super().flush()
        for child in self._children.values():
            child.flush()

    def close(self) -> None:
        """Write all values and close the file."""
        super().close()
        for child in self._children.values():
            child.close()

    def _child(self, name: str) -> LogWriter:
        if name not in self._children:
            self._children[name] = LogWriter(self._folder / name, write_to_disk=self._stream is not None)
        return self._children[name]

    def _add_pixels(self, tag: str, pixels: Any, step: int | None, walltime: float | None) -> None:
        height, width, channels = pixels.shape
        self._add(lambda: [messages.image(tag, height, width, channels, png(pixels))], step, walltime)


def _first(value: Any, other: Any) -> Any:
    return other if value is None else value
