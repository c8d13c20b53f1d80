# The HTTP service (docs/export.md). It needs nothing but the wheel: `pip wheel --no-deps --wheel-dir dist .` makes it.
#
#   docker build -t firm .                                                                       # CPU
#   docker build -t firm:gpu --build-arg TORCH=https://download.pytorch.org/whl/cu128 .           # GPU
#   docker run --rm -p 8000:8000 firm                 (with --gpus all for the second)
#
# A container is reached by another name than its own: add --name HOST where a proxy forwards the name that was asked for.
FROM python:3.11-slim
ARG TORCH=https://download.pytorch.org/whl/cpu
COPY dist/firm-*.whl /tmp/
RUN pip install --no-cache-dir --index-url "$TORCH" torch \
 && wheel="$(ls /tmp/firm-*.whl)" \
 && pip install --no-cache-dir "firm[serve] @ file://$wheel" \
 && rm "$wheel" \
 && useradd --create-home firm
USER firm
WORKDIR /home/firm
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"
STOPSIGNAL SIGTERM
ENTRYPOINT ["firm", "serve", "--host", "0.0.0.0"]
