# The server:  docker run -p 8040:8040 -v "$PWD/runs:/data/runs" visualprof
# The agent:   docker run visualprof agent --server http://dashboard:8040 --token T
FROM python:3.13-slim AS build
COPY . /source
RUN pip wheel --no-cache-dir --wheel-dir /wheels '/source[onnxruntime]'

FROM python:3.13-slim
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 visualprof && install -d -o visualprof /data/runs
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'visualprof[onnxruntime]'
USER visualprof
WORKDIR /data
EXPOSE 8040
ENTRYPOINT ["visualprof"]
CMD ["/data/runs", "--host", "0.0.0.0", "--create"]
