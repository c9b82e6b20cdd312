import { expect, test } from "vitest";
import { initialsOf, profilePath } from "./person.ts";

test.each([
  [{ name: "Mara Lind", username: "mara.lind" }, "ML"],
  [{ name: "Ana Maria de Souza", username: "ana" }, "AS"],
  [{ name: null, username: "swift_winger" }, "SW"],
  [{ name: null, username: "olu.4711" }, "O"],
  [{ name: "Élodie", username: "elo" }, "É"],
  [{ name: "نادي الاتحاد", username: "nadi" }, "نا"],
  [{ name: "✨ 7 ✨", username: "star" }, ""],
])("initials of %j are %j", (person, initials) => expect(initialsOf(person)).toBe(initials));

test("path of a profile is by id or username", () => {
  expect(profilePath(7)).toBe("/users/7");
  expect(profilePath("mara.lind")).toBe("/users/mara.lind");
});
