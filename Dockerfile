# What runs in it is the checkout, from its sources; only what it depends on comes from the first stage.
FROM node:24-alpine AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund

FROM node:24-alpine
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY package.json ./
COPY bin bin
COPY migrations migrations
COPY src src
# The image's own user `node`, by number: some platforms check that it is not 0.
RUN mkdir -m 700 /data && chown 1000:1000 /data
USER 1000:1000
ENV HOST=0.0.0.0 PORT=8080 DATA_DIR=/data
VOLUME /data
EXPOSE 8080
# That the process answers. A database that is away makes it no worse: whoever wants to know of that asks /readyz.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["sh", "-c", "wget -q -O /dev/null http://127.0.0.1:$PORT/healthz"]
# Node itself is process 1 and gets the signals.
ENTRYPOINT ["node", "bin/leasehold.js"]
CMD ["serve"]
