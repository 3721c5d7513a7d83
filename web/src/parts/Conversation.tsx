// A rollout as a person reads it. All text is text: nothing of it becomes markup.
import { Fragment, memo, type ReactNode, useMemo, useState } from "react";
import type { Difference } from "../differences";
import { visible, words } from "../format";
import { givenCount, type Message, type RequestedCall, type RolloutRecord, type ToolCall } from "../records";
import { Fold } from "./ui";

const MOST_LETTERS = 6_000;
const MOST_MESSAGES = 200;

/** Text of which a long rest is shown only when asked for. `from` marks where it differs. */
export function Text({ children, from }: { children: string; from?: number | undefined }) {
  const [most, setMost] = useState(MOST_LETTERS);
  const shown = children.slice(0, most);
  const cut = from !== undefined && from < shown.length ? from : undefined;
  return (
    <bdi className="text foreign">
      {cut === undefined ? (
        visible(shown)
      ) : (
        <>
          {visible(shown.slice(0, cut))}
          <mark className="differs">{visible(shown.slice(cut))}</mark>
        </>
      )}
      {children.length > most ? (
        <>
          {"… "}
          <button className="button quiet" onClick={() => setMost((now) => now + 20 * MOST_LETTERS)}>
            {(children.length - most).toLocaleString("en")} more characters
          </button>
        </>
      ) : null}
    </bdi>
  );
}

interface Props {
  record: RolloutRecord;
  differs?: Difference | undefined;
  common?: number | undefined;
  prompt?: ReactNode;
  other?: RolloutRecord | undefined;
}

interface Turn {
  message: Message;
  place: number;
  results: Map<string, Message>;
}

/** Assistant messages with the results of their calls; results without a call stay on their own. */
function turnsOf(messages: Message[]): Turn[] {
  const turns: Turn[] = [];
  const open = new Map<string, Turn>();
  messages.forEach((message, place) => {
    const caller = message.role === "tool" ? open.get(message.call_id ?? "") : undefined;
    if (caller) {
      caller.results.set(message.call_id!, message);
      open.delete(message.call_id!);
      return;
    }
    const turn = { message, place, results: new Map<string, Message>() };
    for (const call of message.calls ?? []) open.set(call.id, turn);
    turns.push(turn);
  });
  return turns;
}

export const Conversation = memo(function Conversation({ record, differs, common, prompt, other }: Props) {
  const [most, setMost] = useState(MOST_MESSAGES);
  const given = useMemo(() => givenCount(record), [record]);
  const turns = useMemo(() => turnsOf(record.messages), [record]);
  const nested = useMemo(() => new Set(record.rows?.filter((row) => row.start === "nested").map((row) => row.agent)), [record]);
  const ran = useMemo(() => new Map(record.tool_calls.map((call) => [call.id, call])), [record]);
  const folded = common ?? Math.max(0, given - 1);
  const before = turns.filter((turn) => turn.place < folded);
  const after = turns.filter((turn) => turn.place >= folded);
  const show = (turn: Turn) => (
    <TurnView key={turn.place} turn={turn} ran={ran} isNested={nested.has(turn.message.agent ?? "")} differs={differs?.message === turn.place ? differs.letter : undefined} other={differs?.message === turn.place ? other?.messages[turn.place] : undefined} />
  );
  return (
    <div>
      {prompt}
      {before.length ? (
        <div className="fold-row">
          <Fold title={common === undefined ? `${before.length} earlier messages of the case` : `${before.length} messages in common`}>
            <div style={{ margin: "8px -14px -8px", opacity: 0.85 }}>{before.slice(0, most).map(show)}</div>
          </Fold>
        </div>
      ) : null}
      {after.slice(0, most).map(show)}
      {after.length > most ? (
        <div className="fold-row">
          <button className="button" onClick={() => setMost((now) => now + MOST_MESSAGES)}>
            Show {Math.min(MOST_MESSAGES, after.length - most)} more of {(after.length - most).toLocaleString("en")} messages
          </button>
        </div>
      ) : null}
      {record.ending !== "answered" || record.detail ? (
        <div className="fold-row">
          <span className="badge warn">{words(record.ending)}</span> <Text>{record.detail}</Text>
        </div>
      ) : null}
    </div>
  );
});

interface TurnProps {
  turn: Turn;
  ran: Map<string, ToolCall>;
  isNested: boolean;
  differs: number | undefined;
  other: Message | undefined;
}

function TurnView({ turn, ran, isNested, differs, other }: TurnProps) {
  const { message } = turn;
  const who = message.role === "assistant" ? visible(message.agent || "assistant") : words(message.role);
  const isFolded = message.role === "system" || message.role === "developer";
  const isEmpty = !message.content && !message.calls?.length && !message.thinking;
  const kind = ["assistant", "user", "tool", "system"].includes(message.role) ? message.role : "other";
  return (
    <div className={`turn ${kind} ${isNested ? "nested" : ""} ${differs === undefined ? "" : "differs"}`}>
      <div className="who">{who}</div>
      <div className="stack">
        {message.thinking ? (
          <Fold title={`Thinking · ${message.thinking.length.toLocaleString("en")} characters`}>
            <div className="thinking"><Text>{message.thinking}</Text></div>
          </Fold>
        ) : null}
        {isFolded ? (
          <Fold title={`${message.content.length.toLocaleString("en")} characters`}><Text>{message.content}</Text></Fold>
        ) : message.content ? (
          <div className={message.role === "tool" ? "mono" : ""}><Text from={differs}>{message.content}</Text></div>
        ) : null}
        {message.calls?.map((call, place) => <Call key={place} call={call} result={turn.results.get(call.id)} ran={ran.get(call.id)} other={differs === undefined ? call : other?.calls?.[place]} />)}
        {isEmpty ? <span className="faint">(nothing)</span> : null}
      </div>
    </div>
  );
}

interface CallProps {
  call: RequestedCall;
  result: Message | undefined;
  ran: ToolCall | undefined;
  other: RequestedCall | undefined;
}

function Call({ call, result, ran, other }: CallProps) {
  const failure = ran?.failure;
  return (
    <div className={`call ${failure ? "failed" : ""}`}>
      <div className="name">
        <b><Text from={other?.tool === call.tool ? undefined : 0}>{call.tool}</Text></b>
        <span className="args"><Arguments text={call.arguments} other={other?.arguments} /></span>
        {failure ? <span className="badge bad">{words(failure)}</span> : null}
      </div>
      <div className="result" tabIndex={0} role="group" aria-label={`result of ${visible(call.tool).slice(0, 60)}`}>
        {result ? <Text>{result.content}</Text> : ran?.result ? <Text>{ran.result}</Text> : <span className="faint">no result</span>}
      </div>
    </div>
  );
}

function entriesOf(text: string | undefined): Map<string, string> | null {
  if (text === undefined || text.length > 20_000) return null;
  try {
    const value: unknown = JSON.parse(text);
    if (!value || typeof value !== "object" || Array.isArray(value)) return null;
    return new Map(Object.entries(value).map(([name, each]) => [name, JSON.stringify(each)]));
  } catch {
    return null;
  }
}

/** The arguments of a call; those that `other` does not have are marked. */
function Arguments({ text, other }: { text: string; other: string | undefined }) {
  const parsed = useMemo(() => entriesOf(text), [text]);
  const theirs = useMemo(() => entriesOf(other), [other]);
  if (!parsed) return <Text from={other === text ? undefined : 0}>{text}</Text>;
  return (
    <>
      {[...parsed].map(([name, value], place) => (
        <Fragment key={place}>
          {place ? "  " : ""}
          <span className="soft">{visible(name)}=</span>
          <Text from={theirs?.get(name) === value ? undefined : 0}>{value}</Text>
        </Fragment>
      ))}
    </>
  );
}
