"""Failures of Spark's queries: explained in one line, and transient only if the cause is outside the pipeline."""

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from headrace.pipeline.spark.failures import SLOW_START, failure_of, is_java_gone


@pytest.mark.parametrize(
    ("raised", "text", "is_transient"),
    [
        ("Traceback\nheadrace.errors.DataLossError: products 1-2 are lost", "products 1-2 are lost", False),
        ("x\nheadrace.errors.SiteUnreachableError: no answer\n\nThe above\nheadrace.errors.PipelineError: not put",
         "not put", True),
        ("headrace.errors.TargetError: t was not written; make room", "t was not written; make room", True),
        ("headrace.errors.PipelineError: the rows do not fit", "the rows do not fit", False),
        ("Job aborted\nPermissionError: [Errno 13] Permission denied", "PermissionError: [Errno 13] Permission denied", True),
        ("Job aborted: Task 0 failed 4 times: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
         "Python worker exited unexpectedly (crashed)", True),
        ("Broken pipe\njava.net.SocketException: Broken pipe\n\tat java.io.IOException.x", "java.net.SocketException: Broken pipe",
         True),
        ("Job aborted: Lost task 0.3 in stage 1.0 (TID 7) (127.0.0.1 executor driver): java.io.OptionalDataException\n\tat x",
         "Spark could not read a task that it had made itself (java.io.OptionalDataException)", True),
        ("org.apache.spark.SparkException: Python worker failed to connect back.\nCaused by: "
         "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back", SLOW_START, True),
        ("[STREAM_FAILED] Query [id = 6] terminated with exception:  SQLSTATE: XXKST (no cause message)\njava.io.EOFException\n"
         "\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)",
         "a Python process of Spark has ended unexpectedly (java.io.EOFException)", True),
        ("=== Streaming Query ===\nExitCodeException exitCode=143: \n\tat org.apache.hadoop.util.Shell.runCommand(Shell.java:1071)",
         "a program that Spark had started was ended by a signal", True),
        ("Traceback\npyspark.errors.ArithmeticException: [DIVIDE_BY_ZERO] no", "[DIVIDE_BY_ZERO] no", False),
        ("PythonException: x\npyarrow.lib.ArrowInvalid: it does not fit\n"
         "py4j.protocol.Py4JJavaError: An error occurred while calling o7.getResult.", "it does not fit", False),
        ("[SOMETHING_ELSE] of Spark\n\tat java.io.FileInputStream.read", "[SOMETHING_ELSE] of Spark", False),
    ],
)  # fmt: skip
def test_failures_from_outside_are_transient_and_those_of_rules_and_data_are_not(
    raised: str, text: str, is_transient: bool
) -> None:
    assert failure_of(raised) == (text, is_transient)


def test_an_exception_of_java_is_not_the_end_of_java() -> None:
    thrown = Py4JJavaError.__new__(Py4JJavaError)
    assert [is_java_gone(error) for error in (thrown, Py4JNetworkError("closed"), ConnectionRefusedError())] == [
        False, True, True,
    ]  # fmt: skip
