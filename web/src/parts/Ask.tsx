// Asks before something is changed. The dialog stays open, with the reason, where a change is refused.
import { type FormEvent, useEffect, useRef, useState } from "react";

export interface Question {
  title: string;
  text?: string;
  field?: { label: string; placeholder?: string; isLong?: boolean };
  confirm: string;
  isDanger?: boolean;
  perform: (value: string) => Promise<void>;
}

let show: (question: Question) => void = () => undefined;

export function ask(question: Question): void {
  show(question);
}

/** The app has one of these; `ask` opens it. */
export function AskHost() {
  const [question, setQuestion] = useState<Question>();
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    show = (next) => {
      setError("");
      setBusy(false);
      setQuestion(next);
    };
  }, []);
  useEffect(() => {
    if (question) dialog.current?.showModal();
  }, [question]);
  if (!question) return null;
  const close = () => {
    dialog.current?.close();
    setQuestion(undefined);
  };
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setBusy(true);
    try {
      await question.perform(String(new FormData(event.currentTarget).get("value") ?? ""));
      close();
    } catch (reason) {
      setError((reason as Error).message);
      setBusy(false);
    }
  };
  const { field } = question;
  return (
    <dialog ref={dialog} aria-labelledby="ask-title" onCancel={close}>
      <form onSubmit={submit} className="stack">
        <h2 id="ask-title">{question.title}</h2>
        {question.text ? <p className="soft">{question.text}</p> : null}
        {field ? (
          <label className="ask-field">
            <span className="faint">{field.label}</span>
            {field.isLong ? <textarea name="value" className="field" rows={4} placeholder={field.placeholder} autoFocus spellCheck={false} /> : <input name="value" className="field" placeholder={field.placeholder} autoFocus autoComplete="off" />}
          </label>
        ) : null}
        {error ? <p className="notice bad" role="alert">{error}</p> : null}
        <div className="row" style={{ justifyContent: "flex-end" }}>
          <button type="button" className="button" onClick={close}>Cancel</button>
          <button className={`button ${question.isDanger ? "danger" : "primary"}`} disabled={isBusy} autoFocus={!field}>{question.confirm}</button>
        </div>
      </form>
    </dialog>
  );
}

/** Settings as people write them: NAME=VALUE, one a line; values are JSON or plain text. */
export function settingsIn(text: string): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const [name, value] = line.split(/=(.*)/s);
    if (!name || value === undefined) throw new Error(`${line}: write NAME=VALUE`);
    Object.defineProperty(found, name.trim(), { value: valueOf(value.trim()), enumerable: true, configurable: true });
  }
  return found;
}

export function valueOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
