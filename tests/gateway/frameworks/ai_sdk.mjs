// An agent on Vercel's AI SDK.
import readline from "node:readline";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import { FUNCTIONS, SCHEMA, SYSTEM, TOOLS } from "./cases.mjs";

const tools = Object.fromEntries(
  TOOLS.map(({ function: { name, description } }) => [
    name,
    tool({
      description,
      inputSchema: jsonSchema(SCHEMA),
      execute: async (given) => FUNCTIONS[name](given),
    }),
  ]),
);

async function play(given, session) {
  const provider = createOpenAI({ baseURL: session.base_url, apiKey: session.api_key });
  const result = await generateText({
    model: provider.chat(session.model),
    system: SYSTEM,
    prompt: given.input,
    tools,
    stopWhen: stepCountIs(6),
  });
  return result.text;
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const given = JSON.parse(line);
  const result = await play(given.case, given.session).then(
    (answer) => ({ answer }),
    (error) => ({ error: String(error) }),
  );
  console.log(JSON.stringify(result));
}
