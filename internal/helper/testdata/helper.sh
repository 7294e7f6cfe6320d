#!/bin/sh
# Decides about one node. What is known of it comes as JSON on standard input,
# the decision goes as JSON to standard output. Everything else belongs on
# standard error, which ends in the log. An exit code other than 0 means: nothing
# is done to the node, and it is asked about again later.
#
# The identity is always the first member. A helper that needs more of the input
# is better off with jq, or in another language.
set -eu

brokers=nats://broker.example.net:4222

# Only what is safe to print into JSON again.
identity=$(sed -n 's/^{"identity":"\([A-Za-z0-9._-]\{1,\}\)",.*/\1/p')
if [ -z "$identity" ]; then
	echo "cannot read the identity" >&2
	exit 1
fi
echo "job ${PROVCTL_JOB:-none}: deciding about $identity" >&2

case $identity in
retired*.example.net)
	printf '{"shutdown":true,"msg":"%s is retired"}\n' "$identity"
	;;
*.example.net)
	# Every value of the configuration is a string: a line of the node's server.conf.
	cat <<REPLY
{
  "configuration": {
    "identity": "$identity",
    "loglevel": "info",
    "plugin.choria.middleware_hosts": "$brokers",
    "plugin.choria.server.provision": "false",
    "plugin.security.provider": "choria"
  },
  "server_claims": {"ou": "choria", "permissions": {"submission": true}},
  "action_policies": {"rpcutil.policy": "policy default allow\\n"}
}
REPLY
	;;
*)
	printf '{"defer":true,"msg":"%s is not one of ours"}\n' "$identity"
	;;
esac
