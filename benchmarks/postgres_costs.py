"""What statements on the two tables of the PostgreSQL store cost a server: CPU and log per row, for
sim/costs/prototype.toml.

    python -m benchmarks.postgres_costs SOCKET_FOLDER PORT POSTMASTER_PID

against an idle server of your own that trusts local connections (autovacuum off, a long checkpoint_timeout); it drops
and makes the two tables. CPU is that of the postmaster and all its children, from /proc; pgbench's own is not in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLIENTS = 20_000
TABLES = """
drop table if exists device_publish_msg, device_session_ctx;
create table device_session_ctx(client_id varchar(255) primary key, last_updated_time bigint not null,
  last_serial_number bigint, last_packet_id int);
create table device_publish_msg(client_id varchar(255) not null, serial_number bigint not null, topic varchar not null,
  time bigint not null, packet_id int, packet_type varchar(255), qos int not null, payload bytea not null,
  retain boolean, msg_expiry_interval int, primary key(client_id, serial_number));
create index on device_publish_msg(client_id, packet_id);
insert into device_session_ctx select 's'||lpad(i::text,7,'0'),1,1,1 from generate_series(1,20000) i;
insert into device_publish_msg select 's'||lpad(i::text,7,'0'), j, 'p/'||lpad(i::text,7,'0'), 1, j, 'PUBLISH', 1,
  decode(repeat('2e',62),'hex'), false from generate_series(1,20000) i, generate_series(1,8) j;
alter system set synchronous_commit=off;
"""
CLIENT = "'s'||lpad((:c#)::text,7,'0')"
STATEMENTS = {
    "nothing": "SELECT 1;",
    "insert": f"INSERT INTO device_publish_msg VALUES({CLIENT}, :s#, 'p/0000001', 1, :p#, 'PUBLISH', 1, "
    f"decode('{'2e' * 62}','hex'), false);",
    "upsert": f"INSERT INTO device_session_ctx VALUES({CLIENT}, 2, :s#, 7) ON CONFLICT (client_id) DO UPDATE SET "
    "last_updated_time=excluded.last_updated_time, last_serial_number=excluded.last_serial_number, "
    "last_packet_id=excluded.last_packet_id;",
    "select": f"SELECT * FROM device_session_ctx WHERE client_id={CLIENT};",
    "delete": f"DELETE FROM device_publish_msg WHERE client_id={CLIENT} AND packet_id=:q#;",
}
DRAWS = (
    f"\\set c# random(1, {CLIENTS})\n\\set s# random(100, 9000000000000000)\n"
    "\\set p# random(9, 65535)\n\\set q# random(1, 8)\n"
)  # fmt: skip


class Server:
    """A running server."""

    def __init__(self, folder: str, port: str, postmaster: int) -> None:
        self.where = ["-h", folder, "-p", port, "-U", "postgres"]
        self.postmaster = postmaster

    def sql(self, text: str) -> str:
        """What psql prints."""
        done = subprocess.run(
            ["psql", *self.where, "-qtA", "postgres"], input=text, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def cpu_s(self) -> float:
        """Of the postmaster, its children, and those that are over."""
        ticks = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(process.name) == self.postmaster:
                ticks += sum(int(field) for field in fields[11:15])
            elif int(fields[1]) == self.postmaster:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def measure(self, statement: str, batch: int, transactions: int) -> tuple[float, float]:
        """(CPU in us, log in bytes) per row, ``batch`` rows in a pipeline and a transaction."""
        body = "".join(statement.replace("#", str(row)) + "\n" for row in range(batch))
        draws = "".join(DRAWS.replace("#", str(row)) for row in range(batch))
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(f"{draws}\\startpipeline\nBEGIN;\n{body}COMMIT;\n\\endpipeline\n")
            script.flush()
            begun = self.sql("select pg_current_wal_insert_lsn()")
            time.sleep(0.3)  # so that the last backend is reaped, and its time counted
            before = self.cpu_s()
            command = [
                "pgbench",
                *self.where,
                "-n",
                "-M",
                "prepared",
                "-t",
                str(transactions),
                "-f",
                script.name,
                "postgres",
            ]
            subprocess.run(command, check=True, capture_output=True)
            time.sleep(0.5)
            used = self.cpu_s() - before
        log = int(self.sql(f"select pg_current_wal_insert_lsn() - '{begun}'::pg_lsn"))
        return used * 1e6 / batch / transactions, log / batch / transactions


def main() -> None:
    """Print a line per statement and batch size."""
    folder, port, postmaster = sys.argv[1:]
    server = Server(folder, port, int(postmaster))
    server.sql(TABLES)
    server.sql("select pg_reload_conf(); vacuum analyze; checkpoint;".replace("; ", ";\n"))
    for batch, transactions in ((1, 10_000), (10, 2_000), (50, 600)):
        for name, statement in STATEMENTS.items():
            cpu_us, log_bytes = server.measure(statement, batch, transactions)
            print(
                f"{name:8} {batch:3} a transaction: {cpu_us:6.1f} us CPU, {log_bytes:5.0f} bytes of log per row",
                flush=True,
            )
    before = server.cpu_s()
    server.sql("vacuum device_publish_msg;")
    print(f"vacuum: {server.cpu_s() - before:.2f} s of CPU")


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "postgres_costs")
