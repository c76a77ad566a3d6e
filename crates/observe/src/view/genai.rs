//! The names of OpenTelemetry's conventions for generative AI, in one table. They are still in development and change.

/// The operation of a span, by our kind: the value of [`OPERATION`].
pub(super) const OPERATIONS: [(&str, &str); 4] = [
    ("turn", "invoke_agent"),
    ("subagent", "invoke_agent"),
    ("model", "chat"),
    ("tool", "execute_tool"),
];
pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(super) const AGENT: &str = "gen_ai.agent.name";
pub(super) const MODEL: &str = "gen_ai.request.model";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
pub(super) const CACHE_WRITE: &str = "gen_ai.usage.cache_creation.input_tokens";
pub(super) const TOOL: &str = "gen_ai.tool.name";
pub(super) const CALL: &str = "gen_ai.tool.call.id";
pub(super) const FINISH: &str = "gen_ai.response.finish_reasons";
pub(super) const FIRST: &str = "gen_ai.response.time_to_first_chunk";
pub(super) const ERROR: &str = "error.type";
/// Ours: what no convention names.
pub(super) const KIND: &str = "purlin.kind";
pub(super) const COST: &str = "purlin.cost.usd";
pub(super) const RETRIES: &str = "purlin.retries";
pub(super) const REQUEST: &str = "rpc.jsonrpc.request_id";
