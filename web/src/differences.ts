// Where the rollouts of a case first differ.
import type { Message, RolloutRecord } from "./records";

export interface Difference {
  message: number;
  letter: number;
}

function textOf(message: Message | undefined): string {
  if (!message) return "";
  return JSON.stringify([message.role, message.thinking ?? "", message.content, (message.calls ?? []).map((call) => [call.tool, call.arguments])]);
}

/** How many of the first messages all records share. The last shared one stays in view; where nothing
 * differs, so does all that follows the question. */
export function commonMessages(records: RolloutRecord[]): number {
  const first = records[0];
  if (!first) return 0;
  let count = 0;
  while (count < first.messages.length && records.every((record) => count < record.messages.length && textOf(record.messages[count]) === textOf(first.messages[count]))) count += 1;
  const isSame = records.every((record) => record.messages.length === count);
  if (isSame) count = first.messages.findLastIndex((message) => message.role === "user") + 1;
  return Math.max(0, count - 1);
}

export function differenceOf(record: RolloutRecord, other: RolloutRecord | undefined, common: number): Difference | undefined {
  if (!other || other === record) return undefined;
  const most = Math.max(record.messages.length, other.messages.length);
  for (let place = common; place < most; place += 1) {
    const [mine, theirs] = [record.messages[place], other.messages[place]];
    if (!mine) return undefined;
    if (textOf(mine) === textOf(theirs)) continue;
    const [a, b] = [mine.content, theirs?.content ?? ""];
    let letter = 0;
    while (letter < a.length && letter < b.length && a[letter] === b[letter]) letter += 1;
    return { message: place, letter };
  }
  return undefined;
}
