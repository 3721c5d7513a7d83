# Sparring on a CPU: docker build -f docker/cpu.Dockerfile -t sparring:cpu .
FROM python:3.11-slim
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends bubblewrap git \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /sparring
# torch first and by itself, as in the Makefile.
RUN pip install --no-cache-dir torch==2.13.0
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt '.[train,mcp]'
RUN useradd --create-home sparring
USER sparring
WORKDIR /work
ENTRYPOINT ["sparring"]
