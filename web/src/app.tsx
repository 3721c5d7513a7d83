// The frame of every screen: header, shortcuts, and the screen that the address names.
import { useEffect, useRef, useState } from "react";
import { firstPlace, isExport, readSession, type Session } from "./api";
import { AskHost } from "./parts/Ask";
import { Icon, useKeys } from "./parts/ui";
import { go, usePlace } from "./router";
import { GroupScreen } from "./screens/Group";
import { OverlayScreen } from "./screens/Overlay";
import { PlansScreen } from "./screens/Plans";
import { RolloutScreen } from "./screens/Rollout";
import { RunScreen } from "./screens/Run";
import { RunsScreen } from "./screens/Runs";
import { SharedContext } from "./shared";
import { useTheme } from "./theme";

export function App() {
  const [session, setSession] = useState<Session>();
  const [theme, toggleTheme] = useTheme();
  const help = useRef<HTMLDialogElement>(null);
  const place = usePlace();
  useEffect(() => {
    readSession().then(setSession, () => undefined);
  }, []);
  useKeys({
    "?": () => help.current?.showModal(),
    t: toggleTheme,
    h: () => go("#/"),
  });
  if (!session) return null;
  const first = place.parts[0] ?? "";
  return (
    <SharedContext value={{ session, theme }}>
      <div className="shell">
        <header className="top">
          <a className="brand" href="#/" aria-label={firstPlace() ? "Sparring: the report" : "Sparring: all runs"}>
            <svg viewBox="0 0 32 32" aria-hidden="true">
              <rect width="32" height="32" rx="7" fill="#4760d6" />
              <path d="M7 21l6-8 5 5 7-9" fill="none" stroke="#fff" strokeWidth="3" strokeLinecap="round" strokeLinejoin="round" />
            </svg>
            Sparring
          </a>
          <nav aria-label="Main">
            <a href="#/" aria-current={first !== "plans" ? "page" : undefined}>
              {firstPlace() ? "Report" : "Runs"}
            </a>
            {isExport() || session.role === "viewer" ? null : (
              <a href="#/plans" aria-current={first === "plans" ? "page" : undefined}>
                Plans
              </a>
            )}
          </nav>
          <span className="grow" />
          {session.role === "owner" ? null : <span className="badge wide-only">{session.name} · {session.role}</span>}
          {isExport() ? <span className="badge">exported</span> : null}
          <button className="icon-button" onClick={() => help.current?.showModal()} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)">
            <Icon name="help" />
          </button>
          <button className="icon-button" onClick={toggleTheme} aria-label={theme === "dark" ? "Light colours" : "Dark colours"} title="Colours (t)">
            <Icon name={theme === "dark" ? "sun" : "moon"} />
          </button>
          {session.can_leave ? (
            <form method="post" action="/leave">
              <button className="button quiet">Sign out</button>
            </form>
          ) : null}
        </header>
        <main>{screenOf(place.parts)}</main>
      </div>
      <AskHost />
      <dialog ref={help} aria-labelledby="keys-title" onClick={(event) => event.target === help.current && help.current?.close()}>
        <h2 id="keys-title">Keyboard</h2>
        <dl className="keys">
          {KEYS.map(([keys, meaning]) => (
            <div key={meaning} style={{ display: "contents" }}>
              <dt>{keys.split(" ").map((key) => <kbd key={key}>{key}</kbd>)}</dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
        <form method="dialog" className="row" style={{ marginTop: 16, justifyContent: "flex-end" }}>
          <button className="button" autoFocus>
            Close
          </button>
        </form>
      </dialog>
    </SharedContext>
  );
}

const KEYS: [string, string][] = [
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["[ ]", "previous and next rollout"],
  [", .", "the same case, a step earlier or later"],
  ["g", "the rollout's group, side by side"],
  ["v", "conversation, tokens, JSON"],
  ["u", "back up"],
  ["x", "choose a run, to lay it over others"],
  ["/", "search"],
  ["h", "all runs"],
  ["t", "light or dark"],
];

function screenOf(parts: string[]) {
  const [screen, run, tab, item] = parts;
  if (screen === "overlay") return <OverlayScreen />;
  if (screen === "plans") return <PlansScreen />;
  if (screen !== "run" || !run) return <RunsScreen />;
  if (tab === "rollout" && item) return <RolloutScreen key={run} run={run} rollout={item} />;
  if (tab === "group" && item) return <GroupScreen run={run} rollout={item} />;
  return <RunScreen key={run} run={run} tab={tab ?? "overview"} />;
}
