#!/usr/bin/env ruby
# frozen_string_literal: true

# A helper with the faults that helpers have; the argument says which.

require "json"

case ARGV.fetch(0)
when "crash"
  raise "no answer from the inventory, token=hunter2 \e[2J#{"x" * 100_000}"
when "chatty"
  puts "looking at #{JSON.parse($stdin.read)["identity"]}"
  puts JSON.generate("defer" => true)
when "silent"
  JSON.parse($stdin.read)
end
