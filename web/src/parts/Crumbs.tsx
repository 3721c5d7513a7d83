// The path to a screen, which is also the title of its page.
import { useEffect } from "react";
import { firstPlace } from "../api";
import { link } from "../router";

export function Crumbs({ items: all }: { items: [string, string[] | null][] }) {
  const items = firstPlace() ? all.slice(1) : all; // a report has no list of runs
  const title = all.map(([label]) => label).reverse().slice(0, -1).join(" · ");
  useEffect(() => {
    document.title = title ? `${title} · Sparring` : "Sparring";
    return () => {
      document.title = "Sparring";
    };
  }, [title]);
  return (
    <nav className="crumbs" aria-label="Breadcrumb">
      {items.map(([label, parts], place) => (
        <span className="row cut" key={label} style={{ gap: 6 }}>
          {place ? <span aria-hidden="true">/</span> : null}
          {parts ? <a className="cut" href={link(parts)}>{label}</a> : <span className="cut">{label}</span>}
        </span>
      ))}
    </nav>
  );
}
