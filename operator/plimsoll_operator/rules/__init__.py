"""The reconcile rules: given what is observed, what is done next, and what is reported.

All of it is pure: no process, no table, no request, and the time is an argument.

    profile_request   which profile a spec asks for
    spec_paths        fields of a problem in words of the spec
    question          from a spec to the question for the search
    observed_state    what a decision is made on
    endings, advice   what exit codes mean, and in whose words people read it
    actions           what a decision may ask for
    step_result       what a step reads, and what it reports
    failures          the table of what follows the end of an attempt
    task_steps        the step of a condition that a task brings about
    rehearsing        the fullest rank of a plan, alone on a device
    preparing         the steps before an attempt
    revising          the plan of an open attempt, revised while it runs
    attempting        the steps of attempts
    summary           an answer of the search in the words of a status
    decide            all steps in order: actions, and a status
"""
