"""Write run data: event files that TensorBoard reads, with the methods of VisualDL's and torch's writers.

- `writer` has the class `LogWriter`.
- `stream` writes records in the background; `scalars` encodes the most frequent ones.
- `crc32c` and `fields` encode records and protobuf messages; `messages` the messages of each kind of value.
- `arrays`, `images`, `audio`, `histograms`, `curves`, `embeddings` and `hparams` convert the logged values.
"""
