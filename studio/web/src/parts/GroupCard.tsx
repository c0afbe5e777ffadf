// Groups: collapsed, one card with pins; open, a frame around its blocks. What is derived says of what, and how to make it editable.

import type { NodeProps } from "@xyflow/react";
import { memo } from "react";
import { readLeaf } from "../logic/literal";
import type { Group, Source } from "../protocol";
import { openDialog, useStore } from "../store";
import { onGroup, saveGroup, copyGroup, removeBlocks, setGroup } from "../groups";
import { Field } from "./Field";
import { Icon } from "./Icon";
import { Menu, type Item } from "./Menu";

export function groupActions(group: Group, at: [number, number]): Item[] {
  const { name, kind, collapsed } = group;
  return [
    collapsed ? { label: "Open", do: () => void onGroup("open", name) } : { label: "Collapse", do: () => void onGroup("collapse", name) },
    ...(kind ? [{ label: "Detach, to edit it", do: () => void onGroup("detach", name) }] : [{ label: "Ungroup", do: () => void onGroup("ungroup", name), keys: "Ctrl Shift G" }]),
    { label: "Rename", do: () => openDialog({ kind: "rename", block: name }), keys: "F2" },
    ...(kind ? [] : [{ label: "Save as a block", do: () => void saveGroup(name) }, { label: "Duplicate", do: () => void copyGroup(name, [at[0] + 40, at[1] + 40]), keys: "Ctrl D" }]),
    { label: "Delete", do: () => void removeBlocks([name]), keys: "Del" },
  ];
}

const counted = (count: number): string => (count === 1 ? "1 block" : `${count} blocks`);

export function GroupHead({ group, at }: { group: Group; at: [number, number] }) {
  const { name, collapsed, members, kind } = group;
  return (
    <>
      <button type="button" className="quiet tiny nodrag" aria-label={`${collapsed ? "Open" : "Collapse"} ${name}`} aria-expanded={!collapsed} title={collapsed ? "Open" : "Collapse"} onClick={() => void onGroup(collapsed ? "open" : "collapse", name)}>
        <Icon name={collapsed ? "right" : "down"} />
      </button>
      <div className="card-names">
        <div className="card-id" title={name}>
          {name}
        </div>
        <div className="card-op">
          {kind ? `${kind}, ` : ""}
          {counted(members)}
        </div>
      </div>
      <Menu label={`Actions of ${name}`} className="quiet tiny nodrag" items={() => groupActions(group, at)}>
        <Icon name="more" />
      </Menu>
    </>
  );
}

/** What a derived group is made of; the numbers of an optimizer can be changed, the blocks cannot. */
export function Derived({ group }: { group: Group }) {
  if (!group.kind) return null;
  const { name, about, settings, problem } = group;
  return (
    <div className="derived">
      <p>{problem ?? `${about}. It follows every change; detach it to edit it.`}</p>
      {Object.entries(settings).map(([setting, value]) => (
        <div className="card-row attribute" key={setting}>
          <span className="attribute-name" aria-hidden="true">
            {setting}
          </span>
          <span className="literal">
            <Field
              label={`${setting} of ${name}`}
              at={{ block: name, pin: setting }}
              className="nodrag nopan"
              text={String(value)}
              commit={async (typed) => {
                const found = readLeaf(typed, ["float64", "bool"]);
                if (!found.ok) throw new Error(found.message);
                await setGroup(name, { [setting]: found.value as unknown as Source });
              }}
            />
          </span>
        </div>
      ))}
    </div>
  );
}

/** The frame of a group that is open. */
export const GroupFrame = memo(function GroupFrame({ id }: NodeProps) {
  const name = id.slice("group ".length);
  const group = useStore((state) => state.page.groups.find((item) => item.name === name));
  if (!group) return null;
  return (
    <div className={`frame${group.kind ? " is-derived" : ""}`}>
      <div className="frame-head">
        <GroupHead group={group} at={group.at} />
        {group.kind && <span className="dim">derived; detach it to edit it</span>}
      </div>
    </div>
  );
});

