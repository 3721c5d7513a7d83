# Sparring on NVIDIA GPUs: docker build -f docker/cuda.Dockerfile -t sparring:cuda .
# Run it with --gpus all. Code of a model is sandboxed only if the container may create user
# namespaces: --security-opt seccomp=unconfined, or an equivalent profile.
FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends python3 python3-venv bubblewrap git \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/sparring
ENV PATH=/opt/sparring/bin:$PATH
WORKDIR /sparring
RUN pip install --no-cache-dir torch==2.13.0
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt '.[train,mcp]'
RUN useradd --create-home sparring
USER sparring
WORKDIR /work
ENTRYPOINT ["sparring"]
