import { Redirect, Route, Router, Switch } from "wouter";
import { useHashLocation } from "wouter/use-hash-location";
import "./app.css";
import { Frame } from "./frame.tsx";
import { Goals } from "./live/goals.tsx";
import { LiveProvider } from "./live/live.tsx";
import { MatchPage } from "./match/match-page.tsx";
import { MatchesPage } from "./matches/matches-page.tsx";
import { MePage } from "./me/me-page.tsx";
import { Login } from "./session/login.tsx";
import { MeContext, matchday, useIsLoggedIn } from "./session/session.ts";
import { TablePage } from "./table/table-page.tsx";
import { useAnswer } from "./ui/answer.ts";
import { Shown } from "./ui/states.tsx";

export function App() {
  return useIsLoggedIn() ? <Inside /> : <Login />;
}

function Inside() {
  const answer = useAnswer((signal) => matchday.get("/api/auth/me", { signal }), []);
  return (
    <Shown answer={answer}>
      {({ data: me }) => (
        <MeContext value={{ me, reload: answer.reload }}>
          <LiveProvider>
            {/* The page's address is behind the #, so that any server of files can hold it. */}
            <Router hook={useHashLocation}>
              <Frame>
                <Switch>
                  <Route path="/">
                    <MatchesPage />
                  </Route>
                  <Route path="/match/:id">{({ id }) => <MatchPage key={id} id={Number(id)} />}</Route>
                  <Route path="/table">
                    <TablePage scope={{}} />
                  </Route>
                  <Route path="/table/tournament/:id">
                    {({ id }) => <TablePage scope={{ tournament_id: Number(id) }} />}
                  </Route>
                  <Route path="/table/room/:id">
                    {({ id }) => <TablePage scope={{ room_id: decodeURIComponent(id) }} />}
                  </Route>
                  <Route path="/me">
                    <MePage />
                  </Route>
                  <Route>
                    <Redirect to="/" />
                  </Route>
                </Switch>
              </Frame>
              <Goals />
            </Router>
          </LiveProvider>
        </MeContext>
      )}
    </Shown>
  );
}
