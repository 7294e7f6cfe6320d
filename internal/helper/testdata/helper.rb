#!/usr/bin/env ruby
# frozen_string_literal: true

# Decides about one node. What is known of it comes as JSON on standard input,
# the decision goes as JSON to standard output. Everything else belongs on
# standard error, which ends in the log. An exception ends with exit code 1:
# nothing is done to the node, and it is asked about again later.

require "json"

BROKERS = "nats://broker.example.net:4222"

# The lines of the node's server.conf; every value is a string.
def configuration(identity)
  {
    "identity" => identity,
    "loglevel" => "info",
    "plugin.choria.middleware_hosts" => BROKERS,
    "plugin.choria.server.provision" => "false",
    "plugin.security.provider" => "choria"
  }
end

def decide(node)
  identity = node.fetch("identity")
  return { "defer" => true, "msg" => "#{identity} is not one of ours" } unless identity.end_with?(".example.net")
  return { "shutdown" => true, "msg" => "#{identity} is retired" } if identity.start_with?("retired")

  inventory = node["inventory"].to_s
  facts = inventory.empty? ? {} : JSON.parse(inventory).fetch("facts", {})
  {
    "configuration" => configuration(identity),
    "server_claims" => {
      "ou" => facts.fetch("ou", "choria"),
      "permissions" => { "submission" => true }
    },
    "action_policies" => { "rpcutil.policy" => "policy default allow\n" }
  }
end

$stdin.set_encoding(Encoding::UTF_8)
node = JSON.parse($stdin.read)
warn "job #{ENV.fetch("PROVCTL_JOB", "none")}: deciding about #{node["identity"]}"
puts JSON.generate(decide(node))
