// A plain loop over OpenAI's client for Node.
import readline from "node:readline";
import OpenAI from "openai";
import { FUNCTIONS, SYSTEM, TOOLS } from "./cases.mjs";

async function play(given, session) {
  const client = new OpenAI({ baseURL: session.base_url, apiKey: session.api_key });
  const messages = [{ role: "system", content: SYSTEM }, ...given.messages];
  for (;;) {
    const completion = await client.chat.completions.create({
      model: session.model,
      messages,
      tools: TOOLS,
    });
    const reply = completion.choices[0].message;
    if (!reply.tool_calls?.length) return reply.content;
    messages.push(reply);
    for (const call of reply.tool_calls) {
      const result = FUNCTIONS[call.function.name](JSON.parse(call.function.arguments));
      messages.push({ role: "tool", tool_call_id: call.id, content: result });
    }
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const given = JSON.parse(line);
  const result = await play(given.case, given.session).then(
    (answer) => ({ answer }),
    (error) => ({ error: String(error) }),
  );
  console.log(JSON.stringify(result));
}
