# Runs the Worker on one machine: TOKEN=… STORAGE=/absolute/folder … workerd serve workerd.capnp
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "journal", worker = .journal),
    (name = "disk", disk = (writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:8787", http = (), service = "journal")],
);

const journal :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = "2026-01-01",
  bindings = [
    (name = "ACP_SESSION_DO", durableObjectNamespace = "AcpSession"),
    (name = "WORKSPACE_STATE_DO", durableObjectNamespace = "WorkspaceState"),
    (name = "SESSION_INDEX_DO", durableObjectNamespace = "SessionIndex"),
    (name = "TOKEN", fromEnvironment = "TOKEN"),
  ],
  durableObjectNamespaces = [
    (className = "AcpSession", uniqueKey = "purlin-session", enableSql = true),
    (className = "WorkspaceState", uniqueKey = "purlin-workspace", enableSql = true),
    (className = "SessionIndex", uniqueKey = "purlin-index", enableSql = true),
  ],
  durableObjectStorage = (localDisk = "disk"),
);
